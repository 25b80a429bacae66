//! The HTML report of `memonet reproduce` in a browser: the console stays clean, the figures are
//! seen, and on a phone nothing is wider than it.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

const BROWSER: &str = "chromium-headless-shell";

/// Asks the page how it is, and leaves the answers in its title.
const PROBE: &str = "<script>
addEventListener('load', () => {
  const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5);
  const figures = [...document.querySelectorAll('svg')].filter(e => e.getBoundingClientRect().height > 150 && e.querySelector('polyline'));
  document.title = `wide=${wide.length} page=${document.documentElement.scrollWidth} of=${innerWidth} figures=${figures.length}`;
});
</script></body>";

/// The page's title and what it wrote to the console, at this width.
fn look(page: &Path, width: u32) -> (String, Vec<String>) {
    let output = Command::new(BROWSER)
        .args([
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg(format!("--window-size={width},800"))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let title = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let console = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    (title.map(|(title, _)| title.to_owned()).unwrap_or(dom), console)
}

#[test]
fn the_report_in_a_browser() {
    if !common::has(BROWSER) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let reproduce = Command::new(env!("CARGO_BIN_EXE_memonet"))
        .args(["reproduce", "dimmnet-1", "--html"])
        .arg(&page)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(reproduce.status.success(), "{}", String::from_utf8_lossy(&reproduce.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    let figures = html.matches("<svg").count();
    assert!(figures >= 2);
    std::fs::write(&page, html.replace("</body>", PROBE)).unwrap();
    for width in [390, 1280] {
        let (answers, console) = look(&page, width);
        assert_eq!(answers, format!("wide=0 page={width} of={width} figures={figures}"));
        assert!(console.is_empty(), "{console:?}");
    }
    // The probe sees what it is to see: something too wide, and an error.
    let broken = html.replace(
        "</body>",
        &format!("<p style=\"width:2000px\">x</p><script>nothing.at.all</script>{PROBE}"),
    );
    std::fs::write(&page, broken).unwrap();
    let (answers, console) = look(&page, 390);
    assert!(answers.starts_with("wide=1 ") && console.len() == 1, "{answers} {console:?}");
}
