"""How results look: table, Markdown, JSON, progress, redaction. Used by the command line alone."""
