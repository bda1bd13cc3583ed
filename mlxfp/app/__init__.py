"""The application: competitions, configured runs, reports and the command line, written with the public names of mlxfp."""
