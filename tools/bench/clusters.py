"""Cluster files like those of configs/clusters, written by a bench: nodes, and the links that join their ranks."""

# Each pair of ranks has a link of its own, whose two directions are free at the same time.
OF_PAIRS = {"duplex": True, "shared_by": "pair"}


def link(scope, latency, bytes_per_second, **more):
    """A link inside a node or between nodes, with its latency in seconds; its speed is assumed unless `more`, which has
    the link's other keys, names another source."""
    return {
        "scope": scope, "latency_seconds": latency, "bytes_per_second": bytes_per_second, "source": "assumed", **more,
    }


def cluster(count, devices, *links, **more):
    """`count` nodes of `devices` ranks each. `more` holds what else a node has, as `memory_bytes`."""
    return {"nodes": [{"count": count, "devices": devices, **more}], "links": list(links)}


def links_file(place, nodes, latency, bytes_per_second):
    """Writes a cluster of nodes of one rank, with a link for each pair, and returns its path."""
    between = link("network", latency, bytes_per_second, **OF_PAIRS)
    return place.write("links.json", cluster(nodes, 1, between, memory_bytes=1e9))
