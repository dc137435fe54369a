"""``make audit``: known weaknesses of the packages that are installed, by pip-audit.

pip-audit passes over a package that its service does not know, as an index without that service knows none. Here that is no
success: the exit code is 1 for a weakness, and 2 where packages could not be looked up.
"""

import json
import subprocess
import sys


def main() -> int:
    """Run it, and say what it found."""
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner=off", "--format=json"]
    done = subprocess.run([*command, *sys.argv[1:]], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"audit: nothing was checked, because pip-audit failed: {last}", file=sys.stderr)
        return 2
    weak = [(package, found) for package in packages for found in package.get("vulns", [])]
    for package, found in weak:
        better = ", ".join(found["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {found['id']}, mended in {better}")
    known = [package for package in packages if "vulns" in package]
    skipped = [package["name"] for package in packages if "editable" not in package.get("skip_reason", "editable")]
    print(f"audit: {len(known)} packages looked up, {len(weak)} known weaknesses")
    if skipped:
        names = ", ".join(skipped[:5]) + (", …" if len(skipped) > 5 else "")
        text = f"audit: {len(skipped)} packages could not be looked up ({names}): the data of pip-audit are at pypi.org"
        print(f"{text}, which is not reachable from here", file=sys.stderr)
    return 1 if weak else 2 if skipped or not known else 0


if __name__ == "__main__":
    sys.exit(main())
