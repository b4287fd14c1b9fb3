"""What stops a campaign command before or instead of its answer."""


class CampaignRefused(ValueError):
    """A command cannot do what was asked; the message says what was found and what to do."""
