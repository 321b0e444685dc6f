"""What a new cloud has: flavors and one small image. Safe to repeat."""

from __future__ import annotations

from devstack.client import Client

#: name: (vCPUs, MB, GB, dedicated)
FLAVORS = {
    "p1": (1, 512, 1, True),
    "p2": (2, 512, 1, True),
    "p4": (4, 1024, 1, True),
    "p8": (8, 2048, 1, True),
    "s1": (1, 512, 1, False),
    "s2": (2, 512, 1, False),
}
IMAGE = "tiny"
CONTENT = b"".join(b"pinfold tiny image, block %05d\n" % number for number in range(512))


def seed(client: Client) -> None:
    flavors = {flavor["name"] for flavor in client.get("/v2.1/flavors?is_public=None")["flavors"]}
    for name in FLAVORS.keys() - flavors:
        _flavor(client, name)
    for name, (_, _, _, dedicated) in FLAVORS.items():
        if dedicated:
            specs = {"extra_specs": {"hw:cpu_policy": "dedicated"}}
            client.call("POST", f"/v2.1/flavors/{name}/os-extra_specs", specs)
    images = client.get(f"/image/v2/images?name={IMAGE}")["images"]
    if not any(image["status"] == "active" for image in images):
        _image(client)


def _flavor(client: Client, name: str) -> None:
    vcpus, ram, disk, _ = FLAVORS[name]
    flavor = {"id": name, "name": name, "vcpus": vcpus, "ram": ram, "disk": disk}
    client.call("POST", "/v2.1/flavors", {"flavor": flavor})


def _image(client: Client) -> None:
    wanted = {"name": IMAGE, "disk_format": "raw", "container_format": "bare", "visibility": "public"}
    image = client.call("POST", "/image/v2/images", wanted)
    response = client.http.put(
        f"/image/v2/images/{image['id']}/file",
        content=CONTENT,
        headers={"Content-Type": "application/octet-stream"},
    )
    response.raise_for_status()
