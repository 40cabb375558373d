"""The commits to compare: found by name, checked out into a temporary folder, each with an environment by its own bootstrap."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from compare.programs import CompareError, Program, environment_of, undisturbed

# The state before the restructuring: all later work is held against it.
REFERENCE = "e8a2b9c"


@dataclass(frozen=True, slots=True)
class Checkout:
    """One commit in a folder of its own. `label` is new, base or reference."""

    label: str
    commit: str
    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return self.folder / ".venv" / "bin" / "python"

    def bootstrap(self) -> Program:
        """Makes its environment."""
        return Program(
            title=f"scripts/bootstrap of {self.label} ({self.commit[:10]})",
            argv=["scripts/bootstrap"],
            folder=self.folder,
            log=self.folder.parent / f"{self.label}-bootstrap.log",
            environment=environment_of(self.folder),
        )


class Repository:
    """The clone whose HEAD is measured."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._refusal = ""

    def commits(self, base: str) -> dict[str, str]:
        """Full commit ids by label; `reference` is left out when it is the base itself. Raises CompareError."""
        if shutil.which("git") is None:
            raise CompareError("git is not installed")
        if self._git("rev-parse", "--is-inside-work-tree") != "true":
            raise CompareError(
                f"{self._root} is not a git checkout: bench-compare measures commits, so run it in a clone"
            )
        found = {"new": self._resolve("HEAD", ""), "base": self._resolve(base, "see `git log --oneline`")}
        reference = self._resolve(
            REFERENCE, "the clone is shallow: `git fetch --unshallow` brings the reference commit"
        )
        return found if reference == found["base"] else {**found, "reference": reference}

    def uncommitted(self) -> int:
        """How many files differ from HEAD."""
        return len((self._git("status", "--porcelain") or "").splitlines())

    def check_out(self, label: str, commit: str, folder: Path) -> Checkout:
        """A worktree of `commit` at `folder`; raises CompareError. `remove` it even when this was interrupted."""
        with undisturbed():
            if self._git("worktree", "add", "--quiet", "--detach", str(folder), commit) is None:
                raise CompareError(f"git cannot check out {commit[:10]} into {folder}: {self._refusal}")
        return Checkout(label, commit, folder)

    def remove(self, folder: Path) -> None:
        """Remove the worktree and git's record of it."""
        if folder.exists():
            self._git("worktree", "remove", "--force", "--force", str(folder))

    def _resolve(self, name: str, hint: str) -> str:
        commit = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if not commit:
            raise CompareError(f"{name!r} is no commit of this clone" + (f"; {hint}" if hint else ""))
        return commit

    def _git(self, *arguments: str) -> str | None:
        """What git printed; None when it failed."""
        done = subprocess.run(
            ["git", "-C", str(self._root), *arguments],
            env=environment_of(self._root),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        self._refusal = done.stderr.strip()
        return done.stdout.strip() if done.returncode == 0 else None
