"""The NCCL plugin over TCP and libfabric beside what carries the same bytes without it, from the table of docs/results/nccl-plugin.md."""
import re

from pictures.bars import bars
from pictures.tables import rows


def draw():
    groups = {"Latency: how many times as fast as the transport": [], "Bandwidth over TCP, of a plain TCP stream's": [],
              "Bandwidth over libfabric's TCP, of the transport's": []}
    one_way, plain, transport = groups.values()
    for name, _, _, tcp, _, net, *_ in rows("results/nccl-plugin.md", "plugin over TCP"):
        size = name.removesuffix(", GB/s").removesuffix(", µs")
        if "in a row" in size:
            continue
        tcp_ratio, net_ratio = (float(re.search(r"\(([\d.]+)\)", cell)[1]) for cell in (tcp, net))
        if "one way" in size:
            size = size.removesuffix(", one way")
            for how, ratio in (("TCP", tcp_ratio), ("libfabric", net_ratio)):
                one_way.append((f"{size}, {how}", 1 / ratio, f"{1 / ratio:.2f}×"))
        else:
            plain.append((size, tcp_ratio, f"{tcp_ratio:.2f}×"))
            transport.append((size, net_ratio, f"{net_ratio:.2f}×"))
    return bars("The NCCL plugin beside its transport and a plain TCP stream",
                "Latency and bandwidth of the plugin as ratios, by length of message.",
                "Two processes, loopback, two cores of an AMD EPYC. Above 1 the plugin is faster.", list(groups.items()), 2.5)
