"""`python -m rekindle_operator` is the command `rekindle-operator`."""

from rekindle_operator.controller.operator_main import main

if __name__ == "__main__":
    main()
