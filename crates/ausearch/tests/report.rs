//! Chromium lays out the page of `tollgate report`, on a wide and on a narrow screen, and measures it.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// The program of Debian's package chromium-headless-shell.
    const CHROMIUM: &str = "/usr/bin/chromium-headless-shell";

    /// Measures the page: its width, the bars, those outside the chart, and those without a size. The page itself
    /// forbids scripts.
    const PROBE: &str = "<script>
        const box = e => e.getBoundingClientRect();
        const chart = box(document.querySelector('svg'));
        const bars = [...document.querySelectorAll('svg rect')];
        const outside = bars.filter(e => box(e).left < chart.left - 1 || box(e).right > chart.right + 1
            || box(e).top < chart.top - 1 || box(e).bottom > chart.bottom + 1);
        const flat = bars.filter(e => box(e).width === 0 || box(e).height === 0);
        const result = document.createElement('pre');
        result.id = 'measured';
        result.textContent = [document.documentElement.scrollWidth > window.innerWidth, bars.length > 0,
            outside.length, flat.length, document.querySelectorAll('section').length].join(' ');
        document.body.append(result);
    </script></body>";

    fn page(directory: &Path) -> String {
        let golden =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/auditd/enriched.log");
        // The index is written beside the log.
        let log = directory.join("enriched.log");
        fs::copy(golden, &log).unwrap();
        let html = directory.join("page.html");
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate-report"))
            .arg("--html")
            .arg(&html)
            .arg("-if")
            .arg(log)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::read_to_string(html).unwrap()
    }

    /// What Chromium measures on a screen of this width.
    fn measured(directory: &Path, page: &str, width: u32) -> String {
        let (head, rest) = page.split_once("<meta http-equiv").unwrap();
        let (_, rest) = rest.split_once("<title>").unwrap();
        let probe = format!("{head}<title>{rest}").replace("</body>", PROBE);
        let file = directory.join("probe.html");
        fs::write(&file, probe).unwrap();
        let output = Command::new(CHROMIUM)
            .args(["--no-sandbox", "--disable-gpu", "--dump-dom"])
            .arg(format!("--window-size={width},900"))
            .arg(format!(
                "--user-data-dir={}",
                directory.join("browser").display()
            ))
            .arg(format!("file://{}", file.display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let measured = dom
            .split_once("<pre id=\"measured\">")
            .and_then(|(_, rest)| rest.split_once('<'));
        measured.map_or_else(
            || panic!("no measured page: {dom}"),
            |(measured, _)| measured.to_owned(),
        )
    }

    #[test]
    fn page_fits_wide_and_narrow_screens() {
        if !Path::new(CHROMIUM).exists() {
            let line = "\nskipped: page_fits_wide_and_narrow_screens: no chromium-headless-shell\n";
            std::io::stdout().write_all(line.as_bytes()).unwrap();
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let page = page(directory.path());
        assert!(!page.contains("<script"));
        for width in [1200, 390] {
            // No wider than the screen, bars, all of them inside the chart and visible, five tables.
            assert_eq!(
                measured(directory.path(), &page, width),
                "false true 0 0 5",
                "{width}"
            );
        }
    }

    #[test]
    fn a_report_must_be_of_a_kind() {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate-report"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("--html"));
    }
}
