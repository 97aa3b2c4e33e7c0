"""Who may run when: the ledger of versions and rows, the program of operations and its executors."""
