//! Serves what a recorder has counted, as text, to each connection: as much of HTTP as Prometheus
//! needs.

use std::io;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Answers each connection, one after the other, until the listener fails.
///
/// # Errors
/// Returns an error if no connection can be accepted. A connection that breaks is no error.
pub(crate) async fn serve(listener: TcpListener, metrics: PrometheusHandle) -> io::Result<()> {
    loop {
        let (connection, _) = listener.accept().await?;
        // The values that wait in histograms are added to each answer.
        metrics.run_upkeep();
        if let Err(error) = answer(connection, &metrics.render()).await {
            eprintln!("not answered: {error}");
        }
    }
}

async fn answer(connection: TcpStream, text: &str) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    // The request ends with an empty line; there is one answer, whatever is asked for.
    let mut line = String::new();
    while connection.read_line(&mut line).await? > 2 {
        line.clear();
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(text.as_bytes()).await?;
    connection.shutdown().await
}
