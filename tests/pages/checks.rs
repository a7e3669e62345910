//! What every page must keep to, looked at in a browser. Each check gives what is wrong.

use crate::chromium::Browser;
use serde_json::{Value, json};
use std::path::Path;

/// Everything that is wrong with a page.
pub(crate) fn problems(browser: &mut Browser, page: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut backgrounds = Vec::new();
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")] {
        browser.show_as(width, scheme, "screen")?;
        browser.open(page)?;
        let place = format!("{width} px, {scheme}");
        // A refused script, style or image is reported a moment after the page is loaded.
        browser.evaluate("document.body.offsetHeight")?;
        found.extend(silent(browser, page).into_iter().map(|p| format!("{place}: {p}")));
        for (name, expression) in [("overflow", OVERFLOW), ("contrast", CONTRAST)] {
            let wrong = browser.evaluate(expression)?;
            found.extend(texts(&wrong).map(|w| format!("{place}: {name}: {w}")));
        }
        backgrounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor")?);
    }
    if backgrounds[0] == backgrounds[1] {
        found.push(format!("both colour schemes have the background {}", backgrounds[0]));
    }
    browser.show_as(1280, "light", "screen")?;
    browser.open(page)?;
    found.extend(texts(&browser.evaluate(INERT)?).map(|w| format!("markup: {w}")));
    found.extend(texts(&browser.evaluate(OUTLINE)?).map(|w| format!("outline: {w}")));
    found.extend(keyboard(browser)?);
    found.extend(print(browser, page)?);
    Ok(found)
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default().to_owned())
}

/// No error on the console, nothing thrown, nothing requested but the page itself.
fn silent(browser: &Browser, page: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for event in browser.events() {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Log.entryAdded" => found.push(format!("console: {}", parameters["entry"]["text"])),
            "Runtime.consoleAPICalled" => found.push(format!("console: {}", parameters["args"])),
            "Runtime.exceptionThrown" => {
                found.push(format!("thrown: {}", parameters["exceptionDetails"]["text"]));
            }
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                if url != format!("file://{}", page.display()) {
                    found.push(format!("request: {url}"));
                }
            }
            _ => {}
        }
    }
    found
}

/// Nothing is wider than the window; what is scrolls in a box of its own.
const OVERFLOW: &str = "(() => {
  const width = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > width)
    found.push(`the page is ${document.documentElement.scrollWidth} px wide in ${width}`);
  for (const e of document.querySelectorAll('body *')) {
    const box = e.getBoundingClientRect();
    if (box.width === 0 || box.right <= width + 1 || e.closest('svg')) continue;
    if (e.parentElement.closest('.scroll, pre')) continue;
    found.push(`<${e.tagName.toLowerCase()} class=\"${e.className}\"> ends at ${box.right} px`);
  }
  return found.slice(0, 5);
})()";

/// Text stands out from what is behind it: 4.5 to 1, 3 to 1 for large text (WCAG 2, level AA).
const CONTRAST: &str = "(() => {
  const parse = c => { const n = c.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n };
  const light = c => {
    const [r, g, b] = c.slice(0, 3).map(v => v / 255)
      .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) return c;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), drawn = e.closest('svg') !== null;
    const [a, b] = [light(parse(drawn ? style.fill : style.color)), light(behind(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    if (ratio < (size >= 24 || (bold && size >= 18.66) ? 3 : 4.5))
      found.push(`${ratio.toFixed(2)}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return found.slice(0, 5);
})()";

/// Whatever the records contain is shown, never run: the elements of a page are ours alone.
const INERT: &str = "(() => {
  const found = [];
  for (const e of document.querySelectorAll('img, script, iframe, object, embed, link, form, base'))
    found.push(e.outerHTML.slice(0, 80));
  for (const e of document.querySelectorAll('*'))
    for (const a of e.attributes)
      if (a.name.startsWith('on') || /^\\s*javascript:/i.test(a.value)) found.push(`${a.name}=${a.value}`);
  if (window.planted !== undefined) found.push('a planted script ran');
  return found;
})()";

/// A screen reader finds its way: language, title, one first heading, no level left out, names on
/// drawings and scroll boxes, scopes on heads of tables.
const OUTLINE: &str = "(() => {
  const found = [], all = q => [...document.querySelectorAll(q)];
  if (!document.documentElement.lang) found.push('no language');
  if (!document.title.trim()) found.push('no title');
  if (all('h1').length !== 1) found.push(`${all('h1').length} first headings`);
  let level = 1;
  for (const h of all('h1, h2, h3, h4, h5, h6')) {
    const own = Number(h.tagName[1]);
    if (own > level + 1) found.push(`${h.tagName} after level ${level}: ${h.textContent}`);
    level = own;
  }
  for (const e of all('svg, .scroll')) if (!e.getAttribute('aria-label')) found.push(e.outerHTML.slice(0, 60));
  for (const e of all('th')) if (!e.scope) found.push(`a head without scope: ${e.textContent}`);
  const ids = all('[id]').map(e => e.id);
  for (const id of ids) if (ids.filter(i => i === id).length > 1) found.push(`id ${id} twice`);
  for (const e of all('[aria-labelledby]'))
    if (!document.getElementById(e.getAttribute('aria-labelledby'))) found.push('a label that is not there');
  return found.slice(0, 8);
})()";

/// The tabulator key reaches the content link first and then every link, box that scrolls and
/// section that opens.
fn keyboard(browser: &mut Browser) -> Result<Vec<String>, String> {
    let count = browser.evaluate(
        "(window.wanted = [...document.querySelectorAll('a, summary, .scroll')]
            .filter(e => e.checkVisibility()), wanted.length)",
    )?;
    let count = count.as_u64().unwrap_or(0);
    if count == 0 {
        return Ok(vec!["keyboard: there is nothing to reach".to_owned()]);
    }
    browser.evaluate("window.reached = new Set(); document.activeElement.blur()")?;
    for press in 0..count + 2 {
        browser.tab()?;
        browser.evaluate("reached.add(document.activeElement), 0")?;
        if press == 0 {
            let first = browser.evaluate("document.activeElement.className")?;
            if first != json!("skip-link") {
                return Ok(vec![format!("keyboard: the first stop is {first}")]);
            }
            let visible =
                browser.evaluate("document.activeElement.getBoundingClientRect().left >= 0")?;
            if visible != json!(true) {
                return Ok(vec!["keyboard: the focused link cannot be seen".to_owned()]);
            }
        }
    }
    let missed = browser.evaluate(
        "wanted.filter(e => !reached.has(e)).slice(0, 5)
            .map(e => `${e.tagName.toLowerCase()} ${e.getAttribute('aria-label') || e.textContent}`.slice(0, 60))",
    )?;
    Ok(texts(&missed).map(|m| format!("keyboard: not reached: {m}")).collect())
}

/// On paper nothing is cut off: 718 px are the printable width of an A4 sheet.
fn print(browser: &mut Browser, page: &Path) -> Result<Vec<String>, String> {
    browser.show_as(718, "dark", "print")?;
    browser.call("Emulation.setScrollbarsHidden", json!({ "hidden": true }))?;
    browser.open(page)?;
    let mut found: Vec<String> = texts(&browser.evaluate(PRINTED)?).collect();
    let dark = "getComputedStyle(document.body).backgroundColor";
    let background = browser.evaluate(dark)?;
    if background != json!("rgb(255, 255, 255)") {
        found.push(format!("the paper is {background}"));
    }
    let pdf = browser.call("Page.printToPDF", json!({ "printBackground": false }))?;
    // Base64 of `%PDF-`.
    if !pdf["data"].as_str().unwrap_or_default().starts_with("JVBERi0") {
        found.push("no PDF came out".to_owned());
    }
    Ok(found.into_iter().map(|p| format!("print: {p}")).collect())
}

const PRINTED: &str = "(() => {
  const found = [], width = document.documentElement.clientWidth;
  for (const e of document.querySelectorAll('body *')) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > width + 1 && !e.closest('svg'))
      found.push(`<${e.tagName.toLowerCase()} class=\"${e.className}\"> ends at ${Math.round(box.right)} of ${width} px: ${e.textContent.trim().slice(0, 40)}`);
  }
  return found.slice(0, 5);
})()";
