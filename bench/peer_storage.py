"""Samples/s of other loaders over the latents of bench/storage, for bench/storage.sh.

usage: peer_storage.py wds PLACE SHARDS | mds PLACE | mds-write SHARDS OUT"""
import glob, io, os, shutil, sys, tarfile, tempfile, time

import numpy


def shards(place, count):
    names = [f"train-{i:06d}.tar" for i in range(count)]
    if not place.startswith("s3://"):
        return [f"{place}/{n}" for n in names]
    return [f"pipe:aws s3 cp --quiet {place}/{n} -" for n in names]


def webdataset(place, count):
    import webdataset as wds
    began, samples = time.time(), 0
    data = wds.WebDataset(shards(place, count), shardshuffle=False, empty_check=False).decode().to_tuple("latent.npy")
    batch = []
    for (latent,) in data:
        batch.append(latent)
        samples += 1
        if len(batch) == 4:
            numpy.stack(batch)
            batch = []
    return samples / (time.time() - began)


def write_mds(folder, out):
    from streaming import MDSWriter
    with MDSWriter(out=out, columns={"latent": "ndarray"}, hashes=["xxh3_64"], size_limit=1 << 26) as writer:
        for path in sorted(glob.glob(folder + "/*.tar")):
            for member in tarfile.open(path):
                if member.name.endswith(".npy"):
                    writer.write({"latent": numpy.load(io.BytesIO(tarfile.open(path).extractfile(member).read()))})


def mosaic(place):
    from streaming import StreamingDataset
    remote = place.startswith("s3://")
    local = tempfile.mkdtemp()
    began, samples, batch = time.time(), 0, []
    data = StreamingDataset(remote=place if remote else None, local=local if remote else os.path.abspath(place),
                            batch_size=4, validate_hash="xxh3_64", num_canonical_nodes=1)
    for sample in data:
        batch.append(sample["latent"])
        samples += 1
        if len(batch) == 4:
            numpy.stack(batch)
            batch = []
    rate = samples / (time.time() - began)
    shutil.rmtree(local, ignore_errors=True)
    return rate


def main(verb, place, *rest):
    if verb == "wds":
        print(f"{webdataset(place, int(rest[0])):.1f}")
    elif verb == "mds":
        os.environ.setdefault("S3_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT_URL", ""))
        print(f"{mosaic(place):.1f}")
    else:
        write_mds(place, rest[0])


main(*sys.argv[1:])
