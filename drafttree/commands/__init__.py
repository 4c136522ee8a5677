"""What the commands of the command line do, apart from reading their options."""
