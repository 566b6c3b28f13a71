"""Reports as a person reads them: terminal, notebook, HTML."""
