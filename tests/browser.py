"""Pages in a real browser, where there is one."""

import re
import shutil
import subprocess

import pytest


def opened_in_a_browser(path, folder):
    """The page's text after its script has run to the end with no error in the console; skips without a browser."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((found for name in names if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(names)} is on the PATH")
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=2000", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert re.search(r"<html[^>]* data-ready", done.stdout), "the script ran to its end"
    return done.stdout
