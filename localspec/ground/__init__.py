"""What every part stands on: errors, files, logs, the machine, the terminal."""
