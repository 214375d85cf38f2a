"""How people name what lies in a store: `c17`, a fingerprint's key or its tail, a case folder, a member."""


def name_of(cluster: int) -> str:
    """The name of a cluster: `c17`."""
    return f"c{cluster}"


def member_name(campaign: str, test: int, target: str) -> str:
    """The name of a failure, whether its case is kept or not: `CAMPAIGN:TEST:TARGET`."""
    return f"{campaign}:{test}:{target}"
