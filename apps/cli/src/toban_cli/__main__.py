"""`python -m toban_cli` is `toban`."""

from toban_cli.main import main

if __name__ == "__main__":
    main()
