"""Masters that a run accepts, before anything is started."""

import pytest

from rekindle.model.errors import InputError
from rekindle_spark.spark import spark_master


@pytest.mark.parametrize(
    "master",
    [
        "spark://127.0.0.1:7077",
        "spark://a:7077,[::1]:7078",
        "k8s://https://10.0.0.1:6443",
        "k8s://https://api.example.com",
        "k8s://api.example.com:6443",
    ],
)
def test_a_standalone_master_and_a_kubernetes_api_server_are_accepted(master: str) -> None:
    spark_master.check(master, submitted=False)


@pytest.mark.parametrize(
    "master",
    [
        "yarn",
        "spark://a",
        "spark://a:70777",
        "spark://a:0",
        "k8s://https://api.example.com:66443",
        "k8s://https://api.example.com:port",
        "k8s://https://[::1:6443",
    ],
)
def test_a_master_whose_address_cannot_be_read_is_refused_with_its_text(master: str) -> None:
    with pytest.raises(InputError) as raised:
        spark_master.check(master, submitted=False)
    assert raised.value.what == f"is {master!r}"
    assert "spark://HOST:PORT or k8s://https://HOST:PORT" in raised.value.remedy


def test_a_local_master_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="which has no executors that could be lost"):
        spark_master.check("local[2]", submitted=False)


def test_where_spark_submit_has_named_the_master_another_one_is_refused() -> None:
    spark_master.check(None, submitted=True)
    with pytest.raises(InputError, match="was said to spark-submit already"):
        spark_master.check("spark://a:7077", submitted=True)
