"""The commands: `isaac-appo <command>`, one thin file each."""
