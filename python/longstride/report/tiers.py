"""Which memory holds what: the bytes_* values of a line by tier and tenant."""

TIERS = ("device", "host", "disk")
# Of a line's "other" bytes almost all are activations that stay on the device for the backward pass.
NAMES = {"kv_pages": "pages", "kv_gradient_pages": "page gradients", "other": "activations"}
# The order in which tenants are stacked and listed; those that are not here come last.
ORDER = ("weights", "gradients", "optimizer", "pages", "page gradients", "activations", "workspace")


def tiers_of(memory):
    """{tier: {tenant: bytes}} of {key: bytes}, in a fixed order, without the sums and the limit."""
    tiers = {tier: {} for tier in TIERS}
    for key, size in memory.items():
        name = key.removeprefix("bytes_")
        if name in ("bytes", "limit"):
            continue
        tier = "device"
        for other in ("host", "disk"):
            if name.startswith(other + "_"):
                tier, name = other, name.removeprefix(other + "_")
        name = NAMES.get(name, name).replace("_", " ")
        tiers[tier][name] = tiers[tier].get(name, 0) + size
    return {tier: dict(sorted(tenants.items(), key=_place)) for tier, tenants in tiers.items()}


def _place(tenant):
    name = tenant[0]
    return ORDER.index(name) if name in ORDER else len(ORDER), name
