//! The frame of every page: no script, no request, one inline style sheet.

use super::html::{Element, Node, element, prose, text};
use crate::units::shell_word;
use std::collections::BTreeMap;

const STYLE: &str = include_str!("style.css");

/// A whole page. `kicker` is the small line above the heading.
pub(super) fn page(title: &str, kicker: Node, heading: &str, body: Node, foot: Node) -> String {
    let header = element("header")
        .with(element("p").class("kicker").with(kicker))
        .with(element("h1").with(prose(heading)));
    let main = element("main").attribute("id", "content").with(body);
    let head: Node = [
        meta("viewport", "width=device-width, initial-scale=1"),
        // Nothing may be fetched and nothing may run, whatever the records contain.
        policy("default-src 'none'; style-src 'unsafe-inline'; img-src data:"),
    ]
    .into_iter()
    .collect();
    let skip = element("a").class("skip-link").attribute("href", "#content").with("To the content");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{}<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}\n{}{}{}</body>\n</html>\n",
        head.into_string(),
        text(title).into_string(),
        Node::from(skip).into_string(),
        Node::from(header).into_string(),
        Node::from(main).into_string(),
        Node::from(element("footer").with(foot)).into_string(),
    )
}

fn meta(name: &str, content: &str) -> Node {
    void_meta("name", name, content)
}

fn policy(content: &str) -> Node {
    void_meta("http-equiv", "Content-Security-Policy", content)
}

/// `<meta>` has no end tag; its values are constants of this file.
fn void_meta(key: &str, name: &str, content: &str) -> Node {
    Node::drawing(format!("<meta {key}=\"{name}\" content=\"{content}\">\n"))
}

/// A section with a heading.
pub(super) fn section(id: &str, heading: &str) -> Element {
    element("section")
        .attribute("aria-labelledby", id)
        .with(element("h2").attribute("id", id).with(heading))
}

/// A command line as one types it into a shell.
pub(super) fn command<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Node {
    let line: Vec<String> = words.into_iter().map(|word| shell_word(word.as_ref())).collect();
    element("pre").class("wrap").with(element("code").with(line.join(" "))).into()
}

/// The command that runs something again from a checkout.
pub(super) fn again(verbs: &[&str], words: impl IntoIterator<Item = String>) -> Node {
    let cargo = ["cargo", "run", "--release", "--"].iter().chain(verbs);
    command(cargo.map(|w| (*w).to_owned()).chain(words))
}

/// What `--set` gave, as words of a command line.
pub(super) fn set_words(set: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    set.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")])
}

/// A table that scrolls sideways on narrow screens.
pub(super) fn table(caption: &str, head: &[(&str, &str)], rows: Vec<Node>) -> Node {
    let cells = head.iter().map(|(class, name)| {
        let th = element("th").attribute("scope", "col");
        if class.is_empty() { th.with(*name) } else { th.class(class).with(*name) }
    });
    let table = element("table")
        .attribute("aria-label", caption)
        .with(element("thead").with(element("tr").with_all(cells)))
        .with(element("tbody").with_all(rows));
    captioned(caption, table)
}

/// The caption stands outside the scrolling box, so that it wraps on a narrow screen.
fn captioned(caption: &str, table: Element) -> Node {
    [Node::from(element("p").class("caption").with(caption)), scroll(caption, table)]
        .into_iter()
        .collect()
}

/// A box that scrolls sideways and can be reached with the keyboard.
pub(super) fn scroll(label: &str, content: impl Into<Node>) -> Node {
    element("div")
        .class("scroll")
        .attribute("role", "region")
        .attribute("tabindex", "0")
        .attribute("aria-label", label)
        .with(content)
        .into()
}

/// Rows of a name and a value.
pub(super) fn facts(caption: &str, rows: Vec<(String, Node)>) -> Node {
    let rows = rows.into_iter().map(|(name, value)| {
        element("tr")
            .with(element("th").attribute("scope", "row").with(name))
            .with(element("td").with(value))
    });
    let table = element("table")
        .class("facts")
        .attribute("aria-label", caption)
        .with(element("tbody").with_all(rows));
    captioned(caption, table)
}

/// A cell of a number.
pub(super) fn number(value: impl Into<Node>) -> Element {
    element("td").class("number").with(value)
}

/// A word in a coloured outline; `class` is a verdict or a decision.
pub(super) fn tag(class: &str, word: &str) -> Element {
    element("span").class(&format!("tag {class}")).with(word)
}
