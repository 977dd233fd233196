"""Runs a command for as long as whoever started this lives: python guard.py COMMAND...

Prints the command's process id. When standard input ends, which the kernel sees to even after kill -9, the command is killed.
"""

import subprocess
import sys
import threading


def main() -> int:
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    print(child.pid, flush=True)

    def watch() -> None:
        sys.stdin.buffer.read()
        child.kill()

    threading.Thread(target=watch, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
