//! Markup in which every string is escaped by construction.
//!
//! A [`Node`] is finished markup. The only ways to get one are [`text`] and attribute values,
//! which escape, an [`Element`] of these, and [`Node::drawing`] for SVG that the plot module drew.

use std::fmt::Write as _;

/// Finished markup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node(String);

impl Node {
    /// SVG drawn by the plot module; nothing else may pass unescaped.
    pub(super) fn drawing(svg: String) -> Node {
        Node(svg)
    }

    /// The markup.
    pub(super) fn into_string(self) -> String {
        self.0
    }
}

/// Escaped text. Control characters other than line ends and tabs become U+FFFD, so that nothing
/// from a file can change how the page is read.
pub(super) fn text(content: &str) -> Node {
    let mut out = String::with_capacity(content.len());
    escape(content, &mut out);
    Node(out)
}

fn escape(content: &str, out: &mut String) {
    for c in content.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            // Directional overrides could show text in another order than it has.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// Escaped text in which words between backticks are set as code.
pub(super) fn prose(content: &str) -> Node {
    let parts: Vec<&str> = content.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return text(content);
    }
    let part = |(i, part): (usize, &&str)| -> Node {
        if i % 2 == 0 { text(part) } else { element("code").with(*part).into() }
    };
    parts.iter().enumerate().map(part).collect()
}

impl From<Element> for Node {
    fn from(element: Element) -> Node {
        element.finish()
    }
}

impl From<&str> for Node {
    fn from(content: &str) -> Node {
        text(content)
    }
}

impl From<String> for Node {
    fn from(content: String) -> Node {
        text(&content)
    }
}

impl<T: Into<Node>> FromIterator<T> for Node {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Node {
        Node(items.into_iter().map(|item| item.into().0).collect())
    }
}

/// An element under construction.
#[derive(Clone, Debug)]
pub(super) struct Element {
    tag: &'static str,
    open: String,
    content: String,
}

/// An element without attributes or content yet.
pub(super) fn element(tag: &'static str) -> Element {
    Element { tag, open: format!("<{tag}"), content: String::new() }
}

impl Element {
    /// Adds an attribute; the value is escaped.
    pub(super) fn attribute(mut self, name: &'static str, value: &str) -> Element {
        write!(self.open, " {name}=\"").expect("writing to a string");
        escape(value, &mut self.open);
        self.open.push('"');
        self
    }

    /// Adds the `class` attribute.
    pub(super) fn class(self, names: &str) -> Element {
        self.attribute("class", names)
    }

    /// Appends content; text is escaped.
    pub(super) fn with(mut self, child: impl Into<Node>) -> Element {
        self.content.push_str(&child.into().0);
        self
    }

    /// Appends every item.
    pub(super) fn with_all<T: Into<Node>>(self, children: impl IntoIterator<Item = T>) -> Element {
        children.into_iter().fold(self, Element::with)
    }

    fn finish(self) -> Node {
        let Element { tag, open, content } = self;
        // One element per line where lines do not matter keeps differences of reports readable.
        let end = match tag {
            "p" | "h1" | "h2" | "h3" | "tr" | "li" | "section" | "table" | "figure" | "div"
            | "thead" | "tbody" | "ul" | "header" | "main" | "footer" | "details" | "nav" => "\n",
            _ => "",
        };
        Node(format!("{open}>{content}</{tag}>{end}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_from_files_is_inert() {
        let hostile = "</title><img src=x onerror=\"alert('&')\">\u{202e}\u{0}";
        let node: Node = element("td").attribute("title", hostile).with(hostile).into();
        let expected = "&lt;/title&gt;&lt;img src=x onerror=&quot;alert(&#39;&amp;&#39;)&quot;&gt;\u{fffd}\u{fffd}";
        assert_eq!(node.into_string(), format!("<td title=\"{expected}\">{expected}</td>"));
    }

    #[test]
    fn backticks_set_code() {
        let node = prose("is `f32` <fast>?");
        assert_eq!(node.into_string(), "is <code>f32</code> &lt;fast&gt;?");
        assert_eq!(prose("a ` b"), text("a ` b"));
    }

    #[test]
    fn elements_nest() {
        let list: Node = element("ul").with_all(["a", "b"].map(|t| element("li").with(t))).into();
        assert_eq!(list.into_string(), "<ul><li>a</li>\n<li>b</li>\n</ul>\n");
    }
}
