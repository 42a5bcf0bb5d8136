"""What is left as paper: receipts as types, checked offline, merged over hosts, told as one report."""
