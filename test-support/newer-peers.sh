#!/usr/bin/env bash
# Runs a command with a newer ZooKeeper, Curator and kazoo than the machine's own packages bring:
#
#   test-support/newer-peers.sh debian cargo test --workspace
#   test-support/newer-peers.sh pypi cargo test --workspace
#
# debian  those of Debian's next release, fetched by apt (20 MB); DEBIAN_RELEASE is another, such as trixie
# pypi    the ZooKeeper and the Curator in PyPI's newest pyspark (450 MB, of which 20 are kept), and PyPI's
#         newest kazoo; PYSPARK is another version of it, such as 4.1.0
#
# Nothing is installed. What was fetched is kept in target/peers; delete it to fetch it anew.
set -euo pipefail

# The packages with what is needed, and the jars in them, without their versions.
readonly PACKAGES=(
    libzookeeper-java libcurator-client-java libcurator-framework-java libcurator-recipes-java python3-kazoo
    libcommons-cli-java libcommons-io-java libdropwizard-metrics-java libguava-java libnetty-java libslf4j-java
    libsnappy-java
)
readonly JARS=(
    zookeeper zookeeper-jute curator-client curator-framework curator-recipes
    commons-cli commons-io failureaccess guava metrics-core 'netty-*' slf4j-api slf4j-simple snappy-java
)

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}

# take DIRECTORY: copies the jars of a directory that are needed, by their names with a version.
take() {
    local name
    mkdir "$made/jars"
    for name in "${JARS[@]}"; do
        find "$1" -name "$name-[0-9]*.jar" -exec cp --target-directory="$made/jars" {} +
    done
    # Debian's manifests name other jars by where they are installed, which is where the machine's own are.
    python3 - "$made"/jars/*.jar <<'PYTHON'
import os, sys, zipfile

for path in sys.argv[1:]:
    with zipfile.ZipFile(path) as jar, zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as without:
        for entry in jar.infolist():
            if entry.filename != "META-INF/MANIFEST.MF":
                without.writestr(entry, jar.read(entry))
    os.replace(path + ".new", path)
PYTHON
}

debian() {
    local repository options package
    repository=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
    [[ -n $repository ]] || fail 'apt has no source of Debian packages'
    mkdir -p "$made"/apt/{lists,cache/archives}/partial "$made/apt/debs"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $repository $version main" \
        >"$made/apt/sources.list"
    options=(
        # Beside what the machine's apt knows.
        -o Dir::Etc::SourceList="$made/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$made/apt/lists" -o Dir::State::Status=/dev/null -o Dir::Cache="$made/apt/cache"
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::Languages=none
        -o Acquire::Retries=3 -o APT::Sandbox::User=
    )
    apt-get "${options[@]}" --quiet update >&2
    # Debian 13 has Netty in one package, later releases have it in several.
    mapfile -t netty < <(apt-cache "${options[@]}" pkgnames libnetty- | grep -E -- '-(buffer|common)-java$')
    (cd "$made/apt/debs" && apt-get "${options[@]}" --quiet download "${PACKAGES[@]}" "${netty[@]}" >&2)
    for package in "$made"/apt/debs/*.deb; do
        dpkg-deb --extract "$package" "$made/apt/root"
    done
    take "$made/apt/root/usr/share/java"
    mv "$made/apt/root/usr/lib/python3/dist-packages" "$made/python"
    rm -r "$made/apt"
}

pypi() {
    # What Spark has instead writes no more than errors.
    local logger=/usr/share/java
    [[ -e $logger/slf4j-simple.jar ]] || fail 'no slf4j-simple.jar (try: apt-get install libslf4j-java)'
    mkdir "$made/spark"
    export PIP_ROOT_USER_ACTION=ignore
    python3 -m pip install --quiet --no-deps --target "$made/python" kazoo >&2
    python3 -m pip download --quiet --no-deps --no-binary pyspark --dest "$made/spark" "pyspark$version" >&2
    tar --extract --gzip --directory "$made/spark" --file "$made"/spark/pyspark-*.tar.gz \
        --wildcards '*/deps/jars/*.jar'
    find "$made/spark" \( -name 'slf4j-*' -o -name 'netty-tcnative-*' \) -delete
    take "$made/spark"
    cp --target-directory="$made/jars" "$logger"/slf4j-{api,simple}.jar
    rm -r "$made/spark"
}

(($# >= 2)) || fail 'usage: newer-peers.sh debian|pypi COMMAND..'
source=$1
shift
case $source in
    debian) version=${DEBIAN_RELEASE:-testing} ;;
    pypi) version=${PYSPARK:+==$PYSPARK} ;;
    *) fail "$source is neither debian nor pypi" ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "${CARGO_TARGET_DIR:-$root/target}/peers"
peers=$(cd "${CARGO_TARGET_DIR:-$root/target}/peers" && pwd)/$source${version:+-${version#==}}
if [[ ! -d $peers ]]; then
    # Under its name only when all of it is there.
    made=$(mktemp -d "$peers.XXXXXX")
    trap 'rm -rf -- "$made"' EXIT
    "$source"
    chmod 755 "$made"
    mv --no-target-directory "$made" "$peers"
fi
export ZOOKEEPER_CLASSPATH="$peers/jars/*" CURATOR_CLASSPATH="$peers/jars/*"
export PYTHONPATH="$peers/python${PYTHONPATH:+:$PYTHONPATH}"
for jar in "$peers"/jars/{zookeeper,curator-recipes}-[0-9]*.jar; do
    printf '%s: %s\n' "${0##*/}" "$(basename "$jar" .jar)" >&2
done
exec "$@"
