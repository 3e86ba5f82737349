# genpolicy with the chess and shogi packages, Stockfish and the page:
#   docker build -t genpolicy . && docker run --rm -p 8000:8000 genpolicy
FROM python:3.12-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends stockfish fairy-stockfish \
    && rm -rf /var/lib/apt/lists/*
ENV PATH="/usr/games:$PATH"
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir -c constraints.txt torch --index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir -c constraints.txt '.[all]' && rm -rf /src
RUN useradd --create-home player
USER player
WORKDIR /home/player
EXPOSE 8000
CMD ["genpolicy", "web", "--host", "0.0.0.0", "--allow-host", "localhost"]
