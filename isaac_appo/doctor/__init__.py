"""What this machine can run, and why not: probes, verdicts, and the matrix of what is tested."""
