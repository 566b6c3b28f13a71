"""MERGE itself: the command, and what it goes through in the order of the flow.

Reading a statement (`sql`), tables' files (`scan`) and writing (`write`) belong to their own rooms.
"""
