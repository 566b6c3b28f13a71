"""The oracle's own Python and JARs: found by environment variables, else under ``.venvs``, else built there.

    python tests/oracle/environment.py

builds them; it needs Maven (``mvn``), and uv or Python's ``venv`` with pip. ``DELTAMERGE_ORACLE_PYTHON``
names the Python of an environment that exists, ``DELTAMERGE_ORACLE_JARS`` the folder with its JARs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SPARK = "4.2.0"
DELTA = "4.4.0"
SCALA = "2.13"
PACKAGES = (f"pyspark=={SPARK}", f"delta-spark=={DELTA}", "pandas>=2.2,<3", "pyarrow>=19")
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venvs" / "oracle"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>deltamerge</groupId>
  <artifactId>oracle</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.delta</groupId>
      <artifactId>delta-spark_{SPARK[:3]}_{SCALA}</artifactId>
      <version>{DELTA}</version>
    </dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True)
class OracleEnvironment:
    """A Python with delta-spark.

    Args:
        python: The interpreter.
        jars: What goes into ``spark.jars``.
    """

    python: Path
    jars: tuple[Path, ...]


def find() -> OracleEnvironment | None:
    """Finds an environment that is ready; None where there is none."""
    python = Path(os.environ.get("DELTAMERGE_ORACLE_PYTHON") or FOLDER / "venv" / "bin" / "python")
    jars = Path(os.environ.get("DELTAMERGE_ORACLE_JARS") or FOLDER / "jars")
    # Maven copies what Spark has already, too; only Delta's own are missing there.
    found = tuple(sorted(jars.glob("delta-*.jar")))
    return OracleEnvironment(python, found) if python.exists() and found else None


def build() -> OracleEnvironment:
    """Builds the environment under ``.venvs/oracle``.

    Raises:
        FileNotFoundError: Maven is missing.
        subprocess.CalledProcessError: A package or a JAR cannot be had.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise FileNotFoundError("the oracle needs Maven (mvn, Debian's package maven) for delta-spark's JARs")
    FOLDER.mkdir(parents=True, exist_ok=True)
    python = FOLDER / "venv" / "bin" / "python"
    uv = shutil.which("uv")
    if uv is not None:
        _run(uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, FOLDER / "venv")
        _run(uv, "pip", "install", "--quiet", "--python", python, *PACKAGES)
    else:
        _run(sys.executable, "-m", "venv", FOLDER / "venv")
        _run(python, "-m", "pip", "install", "--quiet", *PACKAGES)
    pom = FOLDER / "pom.xml"
    pom.write_text(_POM, encoding="utf-8")
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={FOLDER / 'jars'}")
    _run(maven, "--quiet", "--batch-mode", "--file", pom, *goal)
    environment = find()
    if environment is None:
        raise FileNotFoundError(f"no delta-*.jar in {FOLDER / 'jars'}")
    return environment


def find_or_build() -> OracleEnvironment:
    """Finds an environment, else builds it."""
    return find() or build()


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    print(find_or_build())
