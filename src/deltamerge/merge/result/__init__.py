"""What a merge commits, its metrics, and the data of its report; how that looks belongs to `render`."""
