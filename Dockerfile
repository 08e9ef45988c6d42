FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin weir && cp target/release/weir /usr/local/bin/weir

FROM debian:bookworm-slim
RUN useradd --system --uid 1000 --home-dir /var/lib/weir --create-home weir
COPY --from=build /usr/local/bin/weir /usr/local/bin/weir
USER weir
VOLUME /var/lib/weir
EXPOSE 9464
# The port of the metrics answers while the changefeed runs; `metrics.listen` has to name it.
HEALTHCHECK --interval=10s --start-period=30s CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9464"]
# PID 1 gets SIGTERM from `docker stop`: a clean stop.
STOPSIGNAL SIGTERM
ENTRYPOINT ["weir"]
CMD ["run", "/etc/weir/changefeed.toml", "--data-dir", "/var/lib/weir/data"]
