"""Application of mlxfp: competitions, configured runs, reports and the command line. The application uses the public API."""
