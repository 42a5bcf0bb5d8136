from nl_cutover.cli import main

main()
