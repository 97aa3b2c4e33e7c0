# syntax=docker/dockerfile:1.7
# Isaac Gym Preview 4 on Python 3.8, torch 2.4.1 for CUDA 12.1. NVIDIA's licence allows no copy of Isaac Gym in a
# repository or a public registry: download it yourself, and keep the image to yourself. From the repository's root:
#   docker build -f docker/isaacgym.Dockerfile -t isaac-appo:isaacgym \
#     --build-context isaacgym=FOLDER_OF_THE_TARBALL --build-arg ISAACGYM_SHA256=$(sha256sum TARBALL | cut -c1-64) .
#
# Not built yet where it was written, so unverified: the tag below, and its digest. Once pulled, pin it:
#   --build-arg BASE_DIGEST=@sha256:...
# Ubuntu 20.04, as it is the last one with Python 3.8. The devel flavour, as gymtorch asks for the compiler at every
# start, to see whether it is built.
ARG BASE_DIGEST=""
FROM nvidia/cuda:12.1.1-devel-ubuntu20.04${BASE_DIGEST}

ARG UID=1000
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# Without versions: a distribution takes old ones away, so that pins here would break the build one day.
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        python3.8 python3.8-dev python3.8-venv libpython3.8 g++ ninja-build \
        libvulkan1 libegl1 libgl1 libx11-6 libxcursor1 libxi6 libxinerama1 libxrandr2 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid "${UID}" appo \
    && python3.8 -m venv /opt/venv
# The vendor files of EGL and Vulkan: older container toolkits mount the libraries and not these.
COPY docker/icd/10_nvidia.json /usr/share/glvnd/egl_vendor.d/10_nvidia.json
COPY docker/icd/nvidia_icd.json /usr/share/vulkan/icd.d/nvidia_icd.json
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics \
    VK_ICD_FILENAMES=/usr/share/vulkan/icd.d/nvidia_icd.json \
    MUJOCO_GL=egl \
    PYTHONUNBUFFERED=1 \
    TORCH_EXTENSIONS_DIR=/opt/torch_extensions \
    PATH=/opt/venv/bin:$PATH

# The dependencies before the source, so that a change of the source installs nothing again. In two steps, as in the
# Makefile: this Ubuntu's pip is too old for the wheels, and sdists build with the locked setuptools.
COPY requirements/py38.txt /src/requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install -q pip==25.0.1 setuptools==75.3.4 wheel==0.45.1 \
    && python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -r /src/requirements/py38.txt

ARG ISAACGYM_TARBALL=IsaacGym_Preview_4_Package.tar.gz
ARG ISAACGYM_SHA256
RUN --mount=type=bind,from=isaacgym,target=/isaacgym \
    test -f "/isaacgym/${ISAACGYM_TARBALL}" \
        || { echo "No ${ISAACGYM_TARBALL}: download it and name its folder, --build-context isaacgym=FOLDER" >&2; exit 1; } \
    && test -n "${ISAACGYM_SHA256}" \
        || { echo "Give the tarball's checksum: --build-arg ISAACGYM_SHA256=..." >&2; exit 1; } \
    && echo "${ISAACGYM_SHA256}  /isaacgym/${ISAACGYM_TARBALL}" | sha256sum --check --strict \
    && tar -xzf "/isaacgym/${ISAACGYM_TARBALL}" -C /opt \
    && python -m pip install -q --no-cache-dir --no-deps --no-build-isolation -e /opt/isaacgym/python
COPY docker/build_gymtorch.py /opt/build_gymtorch.py
RUN python /opt/build_gymtorch.py /opt/isaacgym/python && chown -R "${UID}" "${TORCH_EXTENSIONS_DIR}"

COPY setup.py pyproject.toml MANIFEST.in README.md LICENSE /src/
COPY cfg /src/cfg/
COPY tasks /src/tasks/
COPY isaac_appo /src/isaac_appo/
RUN python -m pip install -q --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation /src
COPY docker/healthcheck.py /opt/healthcheck.py

USER ${UID}
WORKDIR /home/appo
# Made here, as a new volume takes the owner of the folder that it covers.
RUN mkdir -p runs .cache/pip .cache/warp

HEALTHCHECK --interval=30s --timeout=10s --start-period=15m CMD ["python", "/opt/healthcheck.py"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["isaac-appo"]
CMD ["--help"]
