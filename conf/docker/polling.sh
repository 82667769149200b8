#!/usr/bin/env bash
# Removes from the environment of an image what polling does not need.
set -euo pipefail
shopt -s nullglob
environment=$1
packages=$environment/lib/python3.11/site-packages

# Audits, charts, reports and Pulsar's client, and what no other package needs.
"$environment/bin/pip" uninstall --quiet --yes \
  altair attrs certifi cffi charset-normalizer cryptography great-expectations idna jinja2 \
  jsonschema jsonschema-specifications markupsafe marshmallow mistune narwhals packaging pulsar-client \
  pycparser pyparsing referencing requests rpds-py ruamel-yaml scipy setuptools tqdm tzlocal \
  vl-convert-python

# Spark without Connect, Hive, Kubernetes, machine learning and graphs.
cd "$packages/pyspark/jars"
rm -rf connect-repl spark-{connect,graphx,hive,hive-thriftserver,kubernetes,mllib,mllib-local,repl}_*.jar \
  {JLargeArrays,JTransforms,algebra,arpack,blas,breeze,cats-kernel,datanucleus,derby,kubernetes,lapack,scala-compiler,spire,vertx}[-_]*.jar \
  hive-{beeline,cli,common,exec,jdbc,metastore,serde,service-rpc,shims}-*.jar
# State stores for this system alone.
zip --quiet --delete rocksdbjni-*.jar '*musl*' '*linux32*' '*osx*' '*ppc64le*' '*s390x*' '*riscv64*' '*.dll'

cd "$packages"
strip --strip-unneeded llvmlite/binding/libllvmlite.so
rm -rf {numba,numpy,pandas,pyarrow,pyspark}/{,*/,*/*/}tests pyspark/{examples,pandas,ml,mllib,testing}
rm -rf pyarrow/include pyarrow/*flight*.so*

# What is left must be whole.
"$environment/bin/python" -c 'import deltalake, duckdb, numba, pandas, pyarrow.compute, pyarrow.dataset, pyarrow.fs, pyarrow.parquet, pyspark.sql'
