"""Where rows come from: a live cluster; log directories and recordings follow."""
