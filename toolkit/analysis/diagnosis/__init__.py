"""From observations to findings: open transactions, the rules, causes and impact."""
