"""Tables about single offsets: what an offset holds, who receives it, and the lag of a group."""
