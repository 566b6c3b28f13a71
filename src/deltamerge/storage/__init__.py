"""Where tables are: listing, reading and atomic writing on local file systems and object stores."""
