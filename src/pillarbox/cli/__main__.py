from pillarbox.cli import main

main()
