"""The version of the library, and how it names itself in commits."""

__version__ = "0.2.0"

ENGINE_INFO = f"deltamerge/{__version__}"
