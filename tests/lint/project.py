"""The project's files as git knows them (including new ones), and how a check reports."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files(*suffixes: str) -> list[Path]:
    """Tracked and new files with these suffixes or names, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout
    paths = {Path(line) for line in listed.splitlines()}
    return sorted(p for p in paths if {p.suffix, p.name} & {*suffixes} and (ROOT / p).is_file())


def read(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def report(check: str, findings: list[str]) -> None:
    """Prints the findings and ends the process: with 0 if there are none."""
    for finding in findings:
        print(finding)
    print(f"lint {check}: {'ok' if not findings else f'{len(findings)} findings'}")
    sys.exit(1 if findings else 0)
