# An image with the program alone: no shell, no package manager, not as root.
#
#   docker build -t tidings .
#   docker run --rm --read-only --cap-drop ALL -p 127.0.0.1:8888:8888 tidings serve --demo --listen :8888 --insecure-serve-anyone
#
# docs/deploy.md describes how to run it in a cluster.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum go.work ./
COPY cmd/tidings/go.mod cmd/tidings/go.sum cmd/tidings/
COPY journal/go.mod journal/go.sum journal/
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/tidings ./cmd/tidings

FROM scratch
# For clusters other than the one it runs in.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/tidings /tidings
USER 65532:65532
ENTRYPOINT ["/tidings"]
CMD ["serve"]
