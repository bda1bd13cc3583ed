"""Layout and files of run folders."""
