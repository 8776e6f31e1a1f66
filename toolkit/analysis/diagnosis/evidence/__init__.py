"""What the log shows about a finding: cause, since when, impact."""
