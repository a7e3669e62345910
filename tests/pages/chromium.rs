//! A headless Chromium, spoken to over its debugging pipe: JSON messages that end with a zero byte.
//! See <https://chromedevtools.github.io/devtools-protocol/>.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// The browser: `CHROME` if it is set, else the first of the usual names on the search path.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROME").filter(|v| !v.is_empty()) {
        return Some(named.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|p| p.is_file())
}

/// A browser with one page open.
pub(crate) struct Browser {
    child: Child,
    stdin: ChildStdin,
    messages: Receiver<Value>,
    session: Value,
    last_id: u64,
    /// Messages that answer nothing: what the page did.
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts the browser and opens an empty page.
    pub(crate) fn start(program: &Path) -> Result<Browser, String> {
        let profile = tempfile::tempdir().map_err(|e| e.to_string())?;
        // The pipe is file descriptors 3 and 4; a shell puts our two there.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 1>&2"])
            .arg(program)
            .args([
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-default-apps",
                "--disable-extensions",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let stdin = child.stdin.take().ok_or("no pipe to the browser")?;
        let stdout = child.stdout.take().ok_or("no pipe from the browser")?;
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(stdout).split(0).map_while(Result::ok) {
                let value = serde_json::from_slice(&message).unwrap_or(Value::Null);
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut browser = Browser {
            child,
            stdin,
            messages,
            session: Value::Null,
            last_id: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)?["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method and waits for its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.stdin.write_all(&bytes).map_err(|e| format!("{method}: {e}"))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let message = self.next(deadline).map_err(|e| format!("{method}: {e}"))?;
            if message["id"].as_u64() != Some(id) {
                self.events.push(message);
            } else if message.get("error").is_some() {
                return Err(format!("{method}: {}", message["error"]));
            } else {
                return Ok(message["result"].clone());
            }
        }
    }

    fn next(&mut self, deadline: Instant) -> Result<Value, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.messages.recv_timeout(left).map_err(|e| format!("no answer: {e}"))
    }

    /// Opens a file and waits until it is loaded; gives every event from then on to `events`.
    pub(crate) fn open(&mut self, page: &Path) -> Result<(), String> {
        self.events.clear();
        let url = format!("file://{}", page.display());
        self.call("Page.navigate", json!({ "url": url }))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.events.iter().any(|e| e["method"] == "Page.loadEventFired") {
            let event = self.next(deadline)?;
            self.events.push(event);
        }
        Ok(())
    }

    /// What happened since the page was opened.
    pub(crate) fn events(&self) -> &[Value] {
        &self.events
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<Value, String> {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let result = self.call("Runtime.evaluate", parameters)?;
        match result.get("exceptionDetails") {
            Some(details) => Err(details.to_string()),
            None => Ok(result["result"]["value"].clone()),
        }
    }

    /// The size of the window, the colour scheme and the medium (`screen` or `print`).
    pub(crate) fn show_as(&mut self, width: u32, scheme: &str, medium: &str) -> Result<(), String> {
        let metrics =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics)?;
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": medium, "features": features }))?;
        Ok(())
    }

    /// Presses the tabulator key.
    pub(crate) fn tab(&mut self) -> Result<(), String> {
        for kind in ["rawKeyDown", "keyUp"] {
            let key = json!({ "type": kind, "key": "Tab", "code": "Tab",
                              "windowsVirtualKeyCode": 9 });
            self.call("Input.dispatchKeyEvent", key)?;
        }
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked to leave, it takes its children along; killed, it may not.
        self.session = Value::Null;
        let _ = self.call("Browser.close", json!({}));
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
