#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens pages of verbena report in Chromium and checks them: report_page.py CHROMIUM PAGE...

Speaks the DevTools protocol over pipes, so nothing but Python and Chromium is needed. Each page is opened at the width
of a desk and of a phone, light and dark: no error in the console, nothing loaded, every plot drawn with its data, no
text outside the page, keys and wheel zoom the time line, the table behind a plot has its values.
"""
import json
import os
import select
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 60

CHECK = r"""
(() => {
  const bad = [];
  const seen = e => { const s = getComputedStyle(e); return s.display !== "none" && s.visibility !== "hidden"; };
  for (const panel of document.querySelectorAll(".panel")) {
    if (!seen(panel)) continue;
    const data = JSON.parse(panel.querySelector("script").textContent);
    const svgs = [...panel.querySelectorAll("svg.plot")].filter(seen);
    if (svgs.length !== 1) { bad.push(panel.dataset.plot + ": " + svgs.length + " pictures"); continue; }
    const box = svgs[0].getBoundingClientRect();
    if (box.width < 200 || box.height < 100) bad.push(panel.dataset.plot + ": is too small");
    const drawn = [...svgs[0].querySelectorAll("g.series")];
    data.series.forEach((s, i) => {
      const part = drawn[i].getBoundingClientRect();
      const line = drawn[i].querySelector("path.ln");
      if (data.kind === "lines" && s.y.some(y => y !== null) && !(line && line.getAttribute("d"))) bad.push(panel.dataset.plot + ": " + s.name + " has no line");
      if (s.y.some(y => y) && part.width + part.height < 2) bad.push(panel.dataset.plot + ": " + s.name + " is not drawn");
    });
    const ticks = [...svgs[0].querySelectorAll(".tick text.mid")].map(t => t.getBoundingClientRect());
    ticks.forEach((t, i) => { if (i && t.left < ticks[i - 1].right - 1) bad.push(panel.dataset.plot + ": ticks overlap"); });
    for (const t of svgs[0].querySelectorAll("text")) {
      const r = t.getBoundingClientRect();
      if (r.left < box.left - 3 || r.right > box.right + 12) bad.push(panel.dataset.plot + ": '" + t.textContent + "' is outside");
    }
  }
  if (document.documentElement.scrollWidth > WIDTH) bad.push("the page is " + document.documentElement.scrollWidth + " px wide");
  const paper = getComputedStyle(document.body).backgroundColor, ink = getComputedStyle(document.body).color;
  const light = c => c.match(/\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 3;
  return { bad, plots: document.querySelectorAll(".panel").length, paper: light(paper), ink: light(ink),
           line: document.querySelector("canvas") ? +document.querySelector("canvas").dataset.drawn : null };
})()
"""

# Each tab of each figure in turn.
TABS = r"""
(() => { const bad = [];
  for (const input of document.querySelectorAll("figure > input")) {
    input.click();
    const figure = input.parentElement, shown = [...figure.querySelectorAll(".panel")].filter(p => getComputedStyle(p).display !== "none");
    if (shown.length !== 1) bad.push(figure.id + ": " + shown.length + " panels");
  }
  return bad; })()
"""

TABLES = r"""
(() => { const bad = [];
  for (const panel of document.querySelectorAll(".panel")) {
    const details = panel.querySelector("details.values"), data = JSON.parse(panel.querySelector("script").textContent);
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
    if (details.querySelectorAll("tbody tr").length < 1) bad.push(panel.dataset.plot + ": no table");
    if (details.querySelectorAll("thead th").length !== data.series.length + 1) bad.push(panel.dataset.plot + ": columns are missing");
  }
  return bad; })()
"""

KEYS = r"""
(() => { const c = document.querySelector("canvas"); if (!c) return null;
  const out = document.querySelector("#fig-timeline output"), texts = [out.textContent];
  const key = k => { c.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true })); texts.push(out.textContent); };
  key("+"); key("+"); key("ArrowRight"); key("-");
  c.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, clientX: c.getBoundingClientRect().left + 50, cancelable: true }));
  texts.push(out.textContent); key("0");
  return texts; })()
"""


class Browser:
    def __init__(self, program, folder):
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()
        self.out, self.into = from_us, from_browser
        self.buffer, self.number, self.events = b"", 0, []
        for fd in (to_browser, to_us):
            os.set_inheritable(fd, True)

        def pipes():
            a, b = os.dup(to_browser), os.dup(to_us)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.log = open(os.path.join(folder, "log"), "w+")
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--user-data-dir=" + folder],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(to_browser)
        os.close(to_us)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], max(0, deadline - time.time()))[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self.into, 1 << 16)
            if not data:
                self.log.seek(0)
                raise EOFError("Chromium has ended: " + self.log.read()[-2000:])
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.time() + DEADLINE_S
        while True:
            got = self.receive(deadline)
            if got.get("id") == self.number:
                assert "error" not in got, (method, got)
                return got["result"]
            self.events.append(got)

    def value(self, session, code):
        got = self.call("Runtime.evaluate", session, expression=code, returnByValue=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")


def faults(events):
    """Returns what the console and the network reported."""
    bad = []
    for e in events:
        p = e.get("params", {})
        if e["method"] == "Runtime.exceptionThrown":
            bad.append("exception: " + json.dumps(p)[:300])
        if e["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            bad.append("console: " + json.dumps(p["args"])[:300])
        if e["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            bad.append("log: " + p["entry"]["text"][:300])
        if e["method"] == "Network.requestWillBeSent" and not p["request"]["url"].startswith(("file:", "data:")):
            bad.append("loads " + p["request"]["url"][:300])
    return bad


def paper(browser, session):
    """Paper is white and as wide as A4, although the screen is dark."""
    browser.call("Emulation.setDeviceMetricsOverride", session, width=794, height=1123, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", session, media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    found = browser.value(session, CHECK.replace("WIDTH", "794"))
    bad = ["printed: " + text for text in found["bad"]]
    return bad + ([] if found["paper"] > 250 > 50 > found["ink"] else ["is not printed black on white"])


def check(browser, page, width, dark):
    where = f"{page} at {width} px, {'dark' if dark else 'light'}"
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    browser.events = []
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.call(domain + ".enable", session)
    browser.call("Emulation.setDeviceMetricsOverride", session, width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.call("Emulation.setEmulatedMedia", session, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    browser.call("Page.navigate", session, url="file://" + os.path.abspath(page))
    deadline = time.time() + DEADLINE_S
    while browser.value(session, "document.readyState") != "complete" or not browser.value(session, "!!document.querySelector('footer')"):
        assert time.time() < deadline, where + ": does not load"
        time.sleep(0.05)
    code = CHECK.replace("WIDTH", str(width))
    found = browser.value(session, code)
    bad = found["bad"] + browser.value(session, TABS) + browser.value(session, code)["bad"]
    if found["plots"] < 3:
        bad.append(f"only {found['plots']} plots")
    if (found["paper"] < found["ink"]) != dark:
        bad.append("has the wrong theme")
    if not dark and width > 600:
        bad += browser.value(session, TABLES)
        browser.value(session, "document.getElementById('theme').click()")
        if browser.value(session, code)["paper"] > 128:
            bad.append("the button does not make it dark")
        browser.value(session, "localStorage.clear()")
    keys = browser.value(session, KEYS)
    if keys is not None and (not found["line"] or keys[0] != keys[-1] or len(set(keys)) < 5):
        bad.append(f"the time line does not zoom: {keys}")
    if dark and width > 600:
        bad += paper(browser, session)
    bad += faults(browser.events)
    browser.call("Target.closeTarget", targetId=target)
    for text in bad:
        print(f"FAIL: {where}: {text}")
    return not bad


def main():
    program, pages = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        try:
            good = [check(browser, page, width, dark) for page in pages for width in (1280, 390) for dark in (False, True)]
            browser.call("Browser.close")
        finally:
            try:
                browser.process.wait(10)
            except subprocess.TimeoutExpired:
                browser.process.kill()
                browser.process.wait()
    return 0 if all(good) else 1


sys.exit(main())
