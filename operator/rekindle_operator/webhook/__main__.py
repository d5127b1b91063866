"""`python -m rekindle_operator.webhook` is the command `rekindle-webhook`."""

from rekindle_operator.webhook.webhook_main import main

if __name__ == "__main__":
    main()
